"""drystone.rechunk"""
