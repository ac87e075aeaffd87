//! Verbs-shaped RDMA trait and its providers: iwarp (user space) and sim
