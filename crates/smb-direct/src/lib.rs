//! SMB Direct (MS-SMBD): one sans-IO core for both ends
