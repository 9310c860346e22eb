"""drystone.emit"""
