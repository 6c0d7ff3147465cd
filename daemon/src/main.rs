//! The program of the node daemon.

fn main() {
    pitstop_daemon::main();
}
