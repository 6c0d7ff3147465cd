//! The model of the API server: laws that scripts cannot tell.

mod laws;
