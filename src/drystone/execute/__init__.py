"""drystone.execute"""
