//! Connections to and from pitstop's Pods, and their share of the API server.

use pitstop_manifests_test::network::{Direction, Peer, Selected, allows};
use pitstop_manifests_test::object::{list, text};
use pitstop_manifests_test::{Object, find};
use serde_json::{Value, json};

use super::folders::{NAMESPACE, every_install};

const TCP: &str = "TCP";
/// Ports of API servers: EKS, GKE and AKS; kubeadm, k3s and most others; minikube; `MicroK8s`.
const API_SERVERS: [u64; 4] = [443, 6443, 8443, 16443];

fn labels(objects: &[Object], program: &str) -> Value {
    let workload = objects.iter().find(|o| o.pod().is_some() && o.name() == program).unwrap();
    workload.pod().unwrap()["metadata"]["labels"].clone()
}

/// Whether the policies allow the connection.
fn open(objects: &[Object], labels: &Value, direction: Direction, peer: Peer, port: (&str, u64)) -> bool {
    allows(objects, Selected { namespace: NAMESPACE, labels }, direction, peer, port).unwrap()
}

#[test]
fn a_pod_of_somebody_else_in_the_namespace_reaches_nobody_and_is_reached_by_nobody() {
    for objects in every_install() {
        for labels in [json!({}), json!({"app.kubernetes.io/name": "pitstop"})] {
            for direction in [Direction::Ingress, Direction::Egress] {
                for (peer, port) in [(Peer::Pod, 8080), (Peer::Outside, 443), (Peer::Outside, 9443)] {
                    assert!(!open(&objects, &labels, direction, peer, (TCP, port)));
                }
            }
        }
    }
}

#[test]
fn the_controller_is_asked_for_admission_and_metrics_and_asks_the_api_server() {
    for objects in every_install() {
        let labels = labels(&objects, "pitstop-controller");
        let open = |direction, peer, port| open(&objects, &labels, direction, peer, port);
        assert!(open(Direction::Ingress, Peer::Outside, (TCP, 9443)), "the API server is no Pod");
        assert!(open(Direction::Ingress, Peer::Pod, (TCP, 8080)));
        assert!(!open(Direction::Ingress, Peer::Outside, (TCP, 8080)));
        assert!(!open(Direction::Ingress, Peer::Pod, (TCP, 22)));
        for port in API_SERVERS {
            assert!(open(Direction::Egress, Peer::Outside, (TCP, port)), "{port}");
        }
        for port in [(TCP, 80), (TCP, 10250), ("UDP", 53)] {
            assert!(
                !open(Direction::Egress, Peer::Outside, port) && !open(Direction::Egress, Peer::Pod, port)
            );
        }
    }
}

#[test]
fn the_daemon_is_asked_for_metrics_and_asks_the_api_server_and_what_hooks_name() {
    for objects in every_install() {
        let labels = labels(&objects, "pitstop-daemon");
        let open = |direction, peer, port| open(&objects, &labels, direction, peer, port);
        assert!(open(Direction::Ingress, Peer::Pod, (TCP, 8080)));
        assert!(!open(Direction::Ingress, Peer::Outside, (TCP, 8080)));
        assert!(!open(Direction::Ingress, Peer::Pod, (TCP, 9443)));
        for port in API_SERVERS {
            assert!(open(Direction::Egress, Peer::Outside, (TCP, port)), "{port}");
        }
        // An httpGet hook to a Pod, to a Pod on the node's network, by DNS name.
        assert!(open(Direction::Egress, Peer::Pod, (TCP, 31_337)));
        assert!(open(Direction::Egress, Peer::Outside, (TCP, 31_337)));
        assert!(open(Direction::Egress, Peer::Pod, ("UDP", 53)));
        assert!(!open(Direction::Egress, Peer::Outside, ("UDP", 123)));
    }
}

#[test]
fn the_ports_that_are_open_are_those_that_are_served() {
    let objects = super::folders::default();
    for program in ["pitstop-controller", "pitstop-daemon"] {
        let labels = labels(&objects, program);
        let workload = objects.iter().find(|o| o.pod().is_some() && o.name() == program).unwrap();
        let served = list(workload.pod().unwrap(), "/spec/containers/0/ports");
        let served: Vec<u64> = served.iter().map(|port| port["containerPort"].as_u64().unwrap()).collect();
        for port in [1, 22, 80, 443, 6443, 8080, 9443, 10250, 65_535] {
            let found = open(&objects, &labels, Direction::Ingress, Peer::Pod, (TCP, port));
            assert_eq!(found, served.contains(&port), "{program}: {port}");
        }
    }
}

#[test]
fn each_programs_requests_have_a_share_of_their_own_whatever_they_ask() {
    for objects in every_install() {
        let names = |kind: &str| -> Vec<&str> {
            objects.iter().filter(|o| o.kind() == kind).map(Object::name).collect()
        };
        for program in ["pitstop-controller", "pitstop-daemon"] {
            let schema = &find(&objects, "FlowSchema", program).unwrap().0["spec"];
            assert_eq!(schema["priorityLevelConfiguration"], json!({"name": program}));
            // After Kubernetes' own schema for leader election (200), before that of all ServiceAccounts.
            let precedence = schema["matchingPrecedence"].as_u64().unwrap();
            assert!((201..9000).contains(&precedence), "{precedence}");
            let any = json!(["*"]);
            let expected = json!([{
                "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": NAMESPACE, "name": program}}],
                "resourceRules": [
                    {"apiGroups": any, "resources": any, "verbs": any, "namespaces": any, "clusterScope": true},
                ],
                "nonResourceRules": [{"nonResourceURLs": any, "verbs": any}],
            }]);
            assert_eq!(schema["rules"], expected);
            let level = &find(&objects, "PriorityLevelConfiguration", program).unwrap().0["spec"];
            assert_eq!(text(level, "/type"), "Limited", "never exempt");
            let limited = &level["limited"];
            // Few, compared with the 245 of all Kubernetes' own levels.
            assert!(limited["nominalConcurrencyShares"].as_u64().unwrap() <= 20);
            assert_eq!(text(limited, "/limitResponse/type"), "Queue");
            let queuing = &limited["limitResponse"]["queuing"];
            assert_eq!((&queuing["queues"], &queuing["handSize"]), (&json!(1), &json!(1)));
        }
        assert_eq!(names("FlowSchema"), names("PriorityLevelConfiguration"));
        assert_eq!(names("FlowSchema").len(), 2);
        let daemons = find(&objects, "PriorityLevelConfiguration", "pitstop-daemon").unwrap();
        assert_eq!(daemons.0["spec"]["limited"]["borrowingLimitPercent"], 100);
    }
}
