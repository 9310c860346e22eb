"""drystone.config"""
