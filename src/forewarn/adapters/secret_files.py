"""The names of the files of a data folder that are secret, or say who is trusted. Nothing else.

Keys and certificates are `certificate_authority`'s, the list of members is `members_file`'s, the
token is `operator_token`'s.
"""

from __future__ import annotations

OPERATOR_TOKEN_FILE = "operator.token"  # noqa: S105 - its name
LINK_FOLDER = "link"
OPERATOR_TLS_FOLDER = "operator-tls"
MEMBERS_FILE = "members.json"
KEY_FILE = "authority.key"
CERTIFICATE_FILE = "authority.crt"
SERVER_KEY_FILE = "server.key"
SERVER_CERTIFICATE_FILE = "server.crt"
