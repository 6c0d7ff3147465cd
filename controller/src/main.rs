//! The program of the controller.

fn main() {
    pitstop_controller::main();
}
