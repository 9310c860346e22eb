"""drystone.verify"""
