//! Tests of the objects that `kubectl apply -k deploy/...` installs, and of the documentation.

// `cfg(test)` tells clippy that the modules are tests, including helper functions.
#[cfg(test)]
mod chart;
#[cfg(test)]
mod defects;
#[cfg(test)]
mod definitions;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod folders;
#[cfg(test)]
mod gate;
#[cfg(test)]
mod gitops;
#[cfg(test)]
mod monitoring;
#[cfg(test)]
mod network;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod seccomp;
#[cfg(test)]
mod webhook;
#[cfg(test)]
mod workloads;
