//! The models of the simulator against the real thing: the same scripts must have the same results.
#![cfg(test)]

mod api;
