"""drystone.read"""
