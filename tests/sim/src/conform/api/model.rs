//! The model as a target.

use chrono::{DateTime, Duration, Utc};
use http::{Request, Response};
use serde_json::Value;

use super::{Scope, Target};
use crate::server::{Server, Watch};

/// A server with one namespace, and the watches of a script.
#[derive(Debug)]
pub struct Model {
    server: Server,
    wall: DateTime<Utc>,
    watches: Vec<Watch>,
}

impl Model {
    /// A fresh model for a run in a scope.
    pub fn new(scope: &Scope) -> Self {
        let wall = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let mut server = Server::new();
        server.insert_namespace(wall, &scope.namespace);
        Self { server, wall, watches: Vec::new() }
    }
}

impl Target for Model {
    fn send(&mut self, request: Request<Vec<u8>>) -> Response<Value> {
        self.wall += Duration::milliseconds(10);
        self.server.handle(self.wall, &request)
    }

    fn watch(&mut self, request: Request<Vec<u8>>) -> Result<usize, Response<Value>> {
        self.watches.push(self.server.watch(self.wall, &request)?);
        Ok(self.watches.len() - 1)
    }

    fn events(&mut self, watch: usize, _expected: usize) -> Vec<Value> {
        self.server.poll(&mut self.watches[watch])
    }
}
