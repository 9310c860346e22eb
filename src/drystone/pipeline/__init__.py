"""drystone.pipeline"""
