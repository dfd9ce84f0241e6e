"""Tokens of OIDC issuers: whose they are is found out here, what they grant in `core.oidc_claims`.

Loaded by services whose settings name an issuer, and by no others.
"""
