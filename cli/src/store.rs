//! Changes of objects: `--dry-run`, `-o`, `--field-manager`, and their output, as in kubectl.

use std::cell::Cell;

use clap::{Args, ValueEnum};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicResourceScope, Resource};
use pitstop_cli_core::change::{Action, Change, Lists};
use pitstop_cli_core::naming::qualified_name;
use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{self, Format, as_dynamic};
use crate::session::Session;

/// How objects are changed.
#[derive(Args, Clone, Debug)]
pub struct Storing {
    /// Dry run: `client` sends nothing, `server` lets the API server check the object without storing it.
    #[arg(long, value_enum, value_name = "HOW", default_value = "none")]
    dry_run: DryRun,
    /// Print the objects or their names instead of a message.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Shown>,
    /// The field manager in `metadata.managedFields`.
    #[arg(long, value_name = "NAME", default_value = "kubectl-pitstop")]
    pub field_manager: String,
}

impl Storing {
    /// It is no dry run.
    pub fn stores(&self) -> bool {
        self.dry_run == DryRun::None
    }

    /// Standard output is for the objects alone.
    pub fn prints_objects(&self) -> bool {
        self.output.is_some()
    }
}

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DryRun {
    /// No dry run.
    None,
    /// Send nothing.
    Client,
    /// Store nothing.
    Server,
}

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shown {
    /// The object as JSON.
    Json,
    /// The object as YAML.
    Yaml,
    /// The type and name of the object.
    Name,
}

/// Changes objects with the caller's rights, and prints what was done.
pub struct Store<'a> {
    session: &'a Session,
    options: &'a Storing,
    printed: Cell<bool>,
}

impl<'a> Store<'a> {
    /// A store with these options.
    pub fn new(session: &'a Session, options: &'a Storing) -> Self {
        Self { session, options, printed: Cell::new(false) }
    }

    /// Makes an object in the namespace of the session.
    pub async fn create<K>(&self, object: &K) -> Result<DynamicObject, Failure>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let made = as_dynamic(object)?;
        let resource = ApiResource::erase::<K>(&());
        let stored = if self.options.dry_run == DryRun::Client {
            made
        } else {
            let params = PostParams { dry_run: self.on_server(), field_manager: Some(self.manager()) };
            self.session.dynamic(&resource).create(&params, &made).await?
        };
        self.report(&resource, &stored, "created")?;
        Ok(stored)
    }

    /// Changes an object, and prints that it is `done`, such as `paused`.
    pub async fn patch<K>(&self, name: &str, change: &Change, done: &str) -> Result<DynamicObject, Failure>
    where
        K: Resource<DynamicType = ()>,
    {
        self.patch_any(&ApiResource::erase::<K>(&()), name, change, done).await
    }

    /// The same for a kind that is known by name.
    pub async fn patch_any(
        &self,
        resource: &ApiResource,
        name: &str,
        change: &Change,
        done: &str,
    ) -> Result<DynamicObject, Failure> {
        let stored = self.patch_quietly(resource, name, change).await?;
        self.report(resource, &stored, done)?;
        Ok(stored)
    }

    /// The same without output, for changes that may need a retry.
    pub async fn patch_quietly(
        &self,
        resource: &ApiResource,
        name: &str,
        change: &Change,
    ) -> Result<DynamicObject, Failure> {
        let api = self.session.dynamic(resource);
        if self.options.dry_run == DryRun::Client {
            return applied(&api, name, change).await;
        }
        let params = PatchParams {
            dry_run: self.on_server(),
            field_manager: Some(self.manager()),
            ..PatchParams::default()
        };
        let patch = match change.lists {
            Lists::Whole => Patch::Merge(&change.patch),
            Lists::ByName => Patch::Strategic(&change.patch),
        };
        Ok(api.patch(name, &params, &patch).await?)
    }

    /// Changes or deletes an object, and prints that a changed one is `done`, such as `cancelled`.
    pub async fn carry_out<K>(&self, object: &K, action: Action, done: &str) -> Result<(), Failure>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        match action {
            Action::Delete => self.delete(object).await,
            Action::Change(change) => {
                let name = object.meta().name.clone().unwrap_or_default();
                self.patch::<K>(&name, &change, done).await.map(drop)
            }
        }
    }

    /// Deletes an object, if its UID is still the same.
    pub async fn delete<K>(&self, object: &K) -> Result<(), Failure>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let resource = ApiResource::erase::<K>(&());
        let name = object.meta().name.clone().unwrap_or_default();
        if self.options.dry_run != DryRun::Client {
            let same_object = Preconditions { uid: object.meta().uid.clone(), resource_version: None };
            let params = DeleteParams {
                dry_run: self.on_server(),
                preconditions: Some(same_object),
                ..DeleteParams::default()
            };
            drop(self.session.dynamic(&resource).delete(&name, &params).await?);
        }
        self.report(&resource, &as_dynamic(object)?, "deleted")
    }

    /// Prints what was done to an object, in the form of `-o`.
    pub fn report(&self, resource: &ApiResource, object: &DynamicObject, done: &str) -> Result<(), Failure> {
        let name = qualified_name(&resource.kind, &resource.group, &object.metadata);
        match self.options.output {
            None => output::print(&format!("{name} {done}{}", self.dry())),
            Some(Shown::Name) => output::print(&name),
            Some(Shown::Json) => output::print(&rendered(object, Format::Json)?),
            Some(Shown::Yaml) => {
                if self.printed.get() {
                    output::print("---");
                }
                output::print(&rendered(object, Format::Yaml)?);
            }
        }
        self.printed.set(true);
        Ok(())
    }

    fn dry(&self) -> &'static str {
        match self.options.dry_run {
            DryRun::None => "",
            DryRun::Client => " (dry run)",
            DryRun::Server => " (server dry run)",
        }
    }

    fn on_server(&self) -> bool {
        self.options.dry_run == DryRun::Server
    }

    fn manager(&self) -> String {
        self.options.field_manager.clone()
    }
}

/// The object after the change, without the API server's defaults.
async fn applied(api: &Api<DynamicObject>, name: &str, change: &Change) -> Result<DynamicObject, Failure> {
    let unreadable = |error| Failure::local("cannot read the object", &error);
    let mut object = value(&api.get(name).await?).map_err(unreadable)?;
    change.apply(&mut object);
    serde_json::from_value(object).map_err(unreadable)
}

fn rendered(object: &DynamicObject, format: Format) -> Result<String, Failure> {
    let object = value(object).map_err(|error| Failure::local("cannot write the object", &error))?;
    output::rendered(object, format)
}

fn value(object: &impl Serialize) -> Result<Value, serde_json::Error> {
    serde_json::to_value(object)
}

impl Session {
    /// Objects of a kind that is known by name: in the session's namespace, or cluster-scoped.
    pub fn dynamic(&self, resource: &ApiResource) -> Api<DynamicObject>
    where
        DynamicObject: Resource<Scope = DynamicResourceScope>,
    {
        match resource.kind.as_str() {
            "Namespace" | "Node" => Api::all_with(self.client.clone(), resource),
            _ => Api::namespaced_with(self.client.clone(), &self.namespace, resource),
        }
    }
}
