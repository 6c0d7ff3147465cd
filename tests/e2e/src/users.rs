//! Users with few rights: a `PodResize` needs the rights to do the same by hand.

use pitstop_api::resize::Phase;
use serde_json::{Value, json};

use crate::ns::Ns;
use crate::resizes::{create, ends, resize, web, with};
use crate::wait::{SHORT, until};
use crate::{Result, bail, ensure, requests};

/// A user who may edit the namespace.
const EDITOR: &str = "erin";
/// A user who may only create a `PodResize` and resize Pods.
const RESIZER: &str = "rhea";

/// A user's `kubectl` in the namespace.
struct User<'a>(&'a Ns, &'static str);

impl User<'_> {
    fn runs(&self, args: &[&str], input: &Value) -> Result<String> {
        let whose = ["--as", self.1, "--namespace", &self.0.name];
        self.0.cluster.kubectl_with(&[&whose, args].concat(), &input.to_string())
    }

    fn tries(&self, object: &Value) -> Result<String> {
        self.runs(&["create", "--dry-run=server", "-f", "-"], object)
    }

    /// Waits until the refusal contains all these words: rights take effect a moment after they are given.
    async fn is_refused(&self, object: &Value, words: &[&str]) -> Result<()> {
        until(&format!("{} to be refused with {words:?}", self.1), SHORT, async || match self.tries(object) {
            Ok(output) => bail!("allowed: {output}"),
            Err(error) if words.iter().all(|word| format!("{error:#}").contains(word)) => Ok(Some(())),
            Err(error) => Err(error),
        })
        .await
    }

    /// Waits until the object is allowed.
    async fn is_allowed(&self, object: &Value) -> Result<()> {
        let what = format!("{} to be allowed {object}", self.1);
        until(&what, SHORT, async || self.tries(object).map(Some)).await.map(drop)
    }
}

/// Admission checks a user's rights at each creation and change of a `PodResize`, and names the missing ones.
pub async fn are_asked_what_they_could_do_by_hand(ns: &Ns) -> Result<()> {
    let cluster = &ns.cluster;
    let (editor, resizer) = (User(ns, EDITOR), User(ns, RESIZER));
    let bind = |user: &str, role: &str| {
        let (user_arg, role_arg) = (format!("--user={user}"), format!("--clusterrole={role}"));
        ns.kubectl(&["create", "rolebinding", &format!("{user}-{role}"), &role_arg, &user_arg]).map(drop)
    };
    ns.start_pod(web()).await?;

    bind(EDITOR, "edit")?;
    let grow = resize("grow", "app", &json!({"limits": {"cpu": "300m"}}));
    let of_pod = format!("{}/web", ns.name);
    let missing = ["patch pods/resize", &of_pod, EDITOR, "ClusterRole pitstop-resizer", "'pitstop-users'"];
    editor.is_refused(&grow, &missing).await?;
    // A restart needs no further right, as with OpenKruise.
    editor.tries(&requests::recreate("again", "web", &["app"]))?;

    // A request of another user: a change outside its spec resizes nothing.
    create(ns, resize("theirs", "app", &json!({"limits": {"cpu": "250m"}}))).await?;
    ends(ns, "theirs", Phase::Succeeded, "Resized").await?;
    let patch = |what: &Value| {
        let what = what.to_string();
        editor.runs(
            &["patch", "podresize", "theirs", "--type=merge", "--dry-run=server", "-p", &what],
            &Value::Null,
        )
    };
    patch(&json!({"metadata": {"labels": {"a": "b"}}}))?;
    match patch(&json!({"spec": {"ttlSecondsAfterFinished": 600}})) {
        Ok(output) => bail!("an editor changes a request: {output}"),
        Err(error) => ensure!(format!("{error:#}").contains("patch pods/resize"), "{error:#}"),
    }

    cluster.documented("let-resize", &[("shop", &ns.name), ("jane", EDITOR)])?;
    editor.is_allowed(&grow).await?;
    editor.runs(&["create", "-f", "-"], &grow)?;
    ends(ns, "grow", Phase::Succeeded, "Resized").await?;

    bind(RESIZER, "pitstop-resizer")?;
    let more = resize("more", "app", &json!({"limits": {"cpu": "350m"}}));
    resizer.is_allowed(&more).await?;
    let evict = [
        with(more.clone(), "onInfeasible", &json!({"then": "Evict"})),
        with(more.clone(), "onDeferred", &json!({"waitSeconds": 60, "then": "Evict"})),
    ];
    for evict in evict {
        resizer.is_refused(&evict, &["create pods/eviction", RESIZER, "ClusterRole edit"]).await?;
        editor.is_allowed(&evict).await?;
    }
    let restart = with(more, "restart", &json!("Always"));
    let missing = ["create containerrecreaterequests.apps.kruise.io", RESIZER, "ClusterRole pitstop-edit"];
    resizer.is_refused(&restart, &missing).await?;
    editor.is_allowed(&restart).await
}
