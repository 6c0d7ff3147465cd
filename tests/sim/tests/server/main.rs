//! The model of the API server: laws that scripts cannot tell.
#![cfg(test)]

mod laws;
