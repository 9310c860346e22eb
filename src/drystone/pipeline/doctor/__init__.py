"""``doctor``: measure this machine and the places of a config once, say what is odd, keep the rates for plans."""
