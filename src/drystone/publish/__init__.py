"""drystone.publish"""
