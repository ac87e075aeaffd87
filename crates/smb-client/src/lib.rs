//! An asynchronous SMB 3.1.1 client over TCP and SMB Direct
