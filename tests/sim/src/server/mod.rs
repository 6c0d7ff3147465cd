//! The model of the API server.
