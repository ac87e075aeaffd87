//! The SMB2/3 server: connections, sessions, channels, opens
