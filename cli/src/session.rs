//! The caller's connection to the API server, by kubectl's rules.

use std::fmt::Debug;

use kube::api::ListParams;
use kube::config::{
    AuthInfo, Config, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster,
    NamedContext,
};
use kube::core::{ClusterResourceScope, NamespaceResourceScope, Resource};
use kube::{Api, Client};
use pitstop_api::rollout::{InPlaceRollout, TargetKind};
use pitstop_cli_core::known::Known;
use pitstop_cli_core::rollouts::of_workload;
use pitstop_cli_core::scope::Scope;
use pitstop_cli_core::workload::{self, Workload};
use pitstop_kit::{client, describe};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::args::Globals;
use crate::failure::Failure;

/// The connection of a command: a client with the caller's credentials, and a namespace.
#[derive(Clone)]
pub struct Session {
    /// The client.
    pub client: Client,
    /// The namespace that was named, or that of the context.
    pub namespace: String,
}

impl Session {
    /// Connects as the flags and the kubeconfig say. Nothing is sent yet.
    pub async fn open(globals: &Globals) -> Result<Self, Failure> {
        let config = config(globals).await?;
        let namespace = globals.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let program = client::Program { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") };
        let client =
            client::of_config(config, program, globals.request_timeout.filter(|most| !most.is_zero()))
                .map_err(|error| Failure::local("cannot connect", &error))?;
        Ok(Self { client, namespace })
    }

    /// Objects of a kind in the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Objects of a kind in the namespaces of that scope.
    pub fn api_of<K>(&self, scope: &Scope) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        if scope.everywhere { Api::all(self.client.clone()) } else { self.api() }
    }

    /// Objects of a kind that has no namespace.
    pub fn cluster<K>(&self) -> Api<K>
    where
        K: Resource<Scope = ClusterResourceScope>,
        K::DynamicType: Default,
    {
        Api::all(self.client.clone())
    }
}

/// The configuration: `--kubeconfig`, otherwise KUBECONFIG and `~/.kube/config`, otherwise that of the Pod that it runs
/// in. Flags overrule the file's cluster and user.
async fn config(globals: &Globals) -> Result<Config, Failure> {
    let unusable = |error: KubeconfigError| Failure::local("cannot use the kubeconfig", &error);
    let read = match &globals.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let kubeconfig = match read {
        Ok(kubeconfig) => kubeconfig,
        Err(error) if globals.kubeconfig.is_none() && is_absent(&error) => {
            if globals.server.is_some() {
                Kubeconfig::default()
            } else if let Some(flag) = globals.first_connection_flag() {
                let why = format!("{flag} needs a kubeconfig or --server, and there is no kubeconfig");
                return Err(Failure::invalid(why));
            } else {
                return Config::incluster().map_err(|_| unusable(error));
            }
        }
        Err(error) => return Err(unusable(error)),
    };
    let options = KubeConfigOptions {
        context: globals.context.clone(),
        cluster: globals.cluster.clone(),
        user: globals.user.clone(),
    };
    let (kubeconfig, options) = overrule(kubeconfig, options, globals)?;
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)
}

/// No kubeconfig exists at all.
fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        KubeconfigError::FindPath => true,
        _ => false,
    }
}

/// Name of the entry for a context, cluster or user that the kubeconfig does not have.
const FLAGS: &str = "flags";

/// Writes the flags into the entries of the kubeconfig that are used, as kubectl does.
fn overrule(
    mut kubeconfig: Kubeconfig,
    mut options: KubeConfigOptions,
    globals: &Globals,
) -> Result<(Kubeconfig, KubeConfigOptions), Failure> {
    let named = options.context.clone().or_else(|| kubeconfig.current_context.clone());
    let context = named.as_deref().and_then(|named| kubeconfig.contexts.iter().find(|it| it.name == named));
    if context.is_none() && globals.server.is_some() && options.context.is_none() {
        let cluster = options.cluster.clone().unwrap_or_else(|| FLAGS.to_owned());
        let context = Context { cluster, user: Some(FLAGS.to_owned()), ..Context::default() };
        kubeconfig.contexts.push(NamedContext {
            name: FLAGS.to_owned(),
            context: Some(context),
            ..NamedContext::default()
        });
        options.context = Some(FLAGS.to_owned());
    }
    let context = options.context.as_ref().or(kubeconfig.current_context.as_ref());
    let context = context.and_then(|named| kubeconfig.contexts.iter().find(|it| it.name == *named));
    let context = context.and_then(|it| it.context.clone()).unwrap_or_default();
    let cluster = options.cluster.clone().unwrap_or(context.cluster);
    let user = options.user.clone().or(context.user).unwrap_or_else(|| FLAGS.to_owned());
    if globals.sets_user() {
        // If the context has no user, the user of the flags is used.
        options.user = Some(user.clone());
    }
    overrule_cluster(&mut kubeconfig, &cluster, globals);
    overrule_user(&mut kubeconfig, &user, globals)?;
    Ok((kubeconfig, options))
}

fn overrule_cluster(kubeconfig: &mut Kubeconfig, name: &str, globals: &Globals) {
    if !kubeconfig.clusters.iter().any(|it| it.name == name) && globals.server.is_some() {
        kubeconfig.clusters.push(NamedCluster { name: name.to_owned(), ..NamedCluster::default() });
    }
    let Some(entry) = kubeconfig.clusters.iter_mut().find(|it| it.name == name) else { return };
    let cluster = entry.cluster.get_or_insert_default();
    if let Some(server) = &globals.server {
        cluster.server = Some(server.clone());
    }
    if let Some(file) = &globals.certificate_authority {
        cluster.certificate_authority = Some(file.display().to_string());
        cluster.certificate_authority_data = None;
    }
    if globals.insecure_skip_tls_verify {
        cluster.insecure_skip_tls_verify = Some(true);
    }
    if let Some(name) = &globals.tls_server_name {
        cluster.tls_server_name = Some(name.clone());
    }
}

fn overrule_user(kubeconfig: &mut Kubeconfig, name: &str, globals: &Globals) -> Result<(), Failure> {
    if globals.as_user.is_none() && !globals.as_group.is_empty() {
        return Err(Failure::invalid("--as-group needs --as: a group is impersonated together with a user"));
    }
    if !kubeconfig.auth_infos.iter().any(|it| it.name == name) {
        kubeconfig.auth_infos.push(NamedAuthInfo { name: name.to_owned(), ..NamedAuthInfo::default() });
    }
    let Some(entry) = kubeconfig.auth_infos.iter_mut().find(|it| it.name == name) else { return Ok(()) };
    let user = entry.auth_info.get_or_insert_default();
    if let Some(token) = &globals.token {
        // The type of a secret is kube's own: deserialize it.
        let read: AuthInfo = serde_json::from_value(json!({ "token": token }))
            .map_err(|error| Failure::local("cannot use --token", &error))?;
        user.token = read.token;
        // These would take precedence over the token.
        (user.token_file, user.exec, user.auth_provider) = (None, None, None);
        (user.username, user.password) = (None, None);
    }
    if let Some(file) = &globals.client_certificate {
        user.client_certificate = Some(file.display().to_string());
        user.client_certificate_data = None;
    }
    if let Some(file) = &globals.client_key {
        user.client_key = Some(file.display().to_string());
        user.client_key_data = None;
    }
    if let Some(name) = &globals.as_user {
        user.impersonate = Some(name.clone());
        user.impersonate_groups = (!globals.as_group.is_empty()).then(|| globals.as_group.clone());
    }
    Ok(())
}

impl Session {
    /// A workload of the namespace.
    pub async fn workload(&self, kind: TargetKind, name: &str) -> Result<Workload, Failure> {
        let object = self.dynamic(&workload::resource(kind)).get(name).await?;
        Ok(Workload { kind, object })
    }

    /// All rollouts of the namespace.
    pub async fn rollouts(&self) -> Result<Vec<InPlaceRollout>, Failure> {
        self.list_all(&self.api(), ListParams::default()).await
    }

    /// The acting rollout of a workload.
    pub async fn rollout_of(&self, kind: TargetKind, name: &str) -> Result<Option<InPlaceRollout>, Failure> {
        Ok(of_workload(kind, name, self.rollouts().await?).into_iter().next())
    }

    /// All objects of a list, which comes in pages.
    pub async fn list_all<K>(&self, api: &Api<K>, params: ListParams) -> Result<Vec<K>, Failure>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let mut all = Vec::new();
        let mut page = params.limit(PAGE);
        loop {
            let list = api.list(&page).await?;
            all.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(all),
            }
        }
    }
}

impl Session {
    /// All objects of a list, as far as the caller may read them. Missing: the API server does not serve the kind.
    pub async fn known_list<K>(&self, api: Api<K>, params: ListParams) -> Known<Vec<K>>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        self.known_some(api, params, Some).await
    }

    /// The same, but keeps only the results of `of` for each object: a list may be long, and little of it matter.
    pub async fn known_some<K, T>(
        &self,
        api: Api<K>,
        params: ListParams,
        mut of: impl FnMut(K) -> Option<T>,
    ) -> Known<Vec<T>>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let mut all = Vec::new();
        let mut page = params.limit(PAGE);
        loop {
            let list = match api.list(&page).await {
                Ok(list) => list,
                Err(kube::Error::Api(status)) if status.is_not_found() => return Known::Missing,
                Err(error) => return Known::Unread(describe(&error)),
            };
            all.extend(list.items.into_iter().filter_map(&mut of));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(_) if all.len() >= MOST => return Known::Unread(format!("there are more than {MOST}")),
                Some(token) => page = page.continue_token(&token),
                None => return Known::Is(all),
            }
        }
    }
}

/// Objects per page of a list.
const PAGE: u32 = 500;
/// Most objects of one list that are kept and judged: more nodes than Kubernetes supports in a cluster.
const MOST: usize = 10_000;

/// The value of an answer. An error keeps the API server's message.
pub fn known<T, U>(answer: kube::Result<Option<T>>, of: impl FnOnce(T) -> U) -> Known<U> {
    match answer {
        Ok(Some(it)) => Known::Is(of(it)),
        Ok(None) => Known::Missing,
        Err(error) => Known::Unread(describe(&error)),
    }
}
