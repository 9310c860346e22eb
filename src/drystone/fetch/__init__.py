"""drystone.fetch"""
