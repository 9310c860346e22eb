"""drystone.discover"""
