"""drystone.cli"""
