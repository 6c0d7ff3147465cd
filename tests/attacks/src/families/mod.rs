//! The probes, by what they attack.

mod books;
mod identity;
mod images;
mod kubelets;
mod matrix;
mod paths;
mod ports;
mod pullers;
mod requests;
mod resources;
mod secrets;
mod sets;
mod users;
mod widened;
mod workloads;

use crate::report::Report;
use crate::stage::Stage;

/// Runs every family, in an order in which none spoils the next one's stage. One that breaks off is one row that is not
/// as expected.
pub async fn run(stage: &mut Stage, report: &mut Report) {
    macro_rules! family {
        ($name:literal, $run:path) => {
            report.family($name);
            if let Err(error) = $run(stage, report).await {
                report.broke($name, &error);
            }
        };
    }
    family!("Identity: whose token may write which status", identity::run);
    family!("Kubelets: what a node can mint for itself", kubelets::run);
    family!("Order books: all but the answers of the own node", books::run);
    family!("Requests of users", requests::run);
    family!("What is worth most in the cluster", secrets::run);
    family!("Every verb of every resource", resources::run);
    family!("Every right, as the API server counts them", matrix::run);
    family!("Paths without resources", paths::run);
    family!("Ports of the nodes and of pitstop", ports::run);
    family!("Users with the role edit in their own namespace", users::run);
    family!("Images: what the controller's token may change, and who may ask for it", images::run);
    family!("Pods that pull images for the controller", pullers::run);
    family!("Workloads that the controller may release", workloads::run);
    family!("A daemon that somebody made cluster-admin", widened::run);
}
