//! Compares the simulator's models with the real components: the same scripts must have the same results.
#![cfg(test)]

mod api;
