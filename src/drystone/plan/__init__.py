"""drystone.plan"""
