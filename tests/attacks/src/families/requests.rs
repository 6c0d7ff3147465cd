//! Requests of users, which a daemon has nothing to do with.

use anyhow::Result;
use http::Method;
use pitstop_e2e::requests::recreate;
use serde_json::json;

use crate::ask;
use crate::probe::rights;
use crate::report::Report;
use crate::stage::{POD, Stage};

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let node = stage.a();
    let name = format!("{}-{POD}", node.name);
    let who = &node.daemon.who;
    for version in ["v1alpha1", "v1beta1"] {
        let all = format!("/apis/apps.kruise.io/{version}/containerrecreaterequests");
        let collection = format!(
            "/apis/apps.kruise.io/{version}/namespaces/{}/containerrecreaterequests",
            stage.others.name
        );
        let one = format!("{collection}/{name}");
        let mut object = stage.stored(&one).await?;
        object["status"]["message"] = json!("forged");
        let mut new = recreate("attacks", &name, &["app"]);
        new["apiVersion"] = json!(format!("apps.kruise.io/{version}"));
        let change = json!({"status": {"phase": "Failed", "message": "forged"}});
        let operations = json!([{"op": "replace", "path": "/status/message", "value": "forged"}]);
        let status = format!("{one}/status?dryRun=All");
        let dry = format!("{one}?dryRun=All");
        let cases = [
            ("list", ask::get(&all)),
            ("list a namespace's", ask::get(&collection)),
            ("watch", ask::get(&format!("{all}?watch=true&timeoutSeconds=1"))),
            ("get", ask::get(&one)),
            ("create", ask::post(&format!("{collection}?dryRun=All"), &new)),
            ("replace", ask::put(&dry, &object)),
            ("merge-patch", ask::patch(&dry, "merge", &change)),
            ("JSON-patch", ask::patch(&dry, "json", &operations)),
            ("apply", ask::patch(&format!("{dry}&fieldManager=x&force=true"), "apply", &new)),
            ("delete", ask::plain(&Method::DELETE, &dry)),
            ("delete all", ask::plain(&Method::DELETE, &format!("{collection}?dryRun=All"))),
            ("get the status of", ask::get(&format!("{one}/status"))),
            ("replace the status of", ask::put(&status, &object)),
            ("merge-patch the status of", ask::patch(&status, "merge", &change)),
            ("JSON-patch the status of", ask::patch(&status, "json", &operations)),
            (
                "apply to the status of",
                ask::patch(&format!("{status}&fieldManager=x&force=true"), "apply", &change),
            ),
        ];
        for (verb, ask) in cases {
            let what = format!("{verb} ContainerRecreateRequests in {version}");
            report.ask(who, &what, ask, rights()).await;
        }
    }
    Ok(())
}
