//! `OpenKruise`: its clients' flows, and its presence in the cluster.

mod beside;
mod cases;
mod versions;
