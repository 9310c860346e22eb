"""drystone.testing"""
