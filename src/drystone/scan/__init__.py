"""drystone.scan"""
