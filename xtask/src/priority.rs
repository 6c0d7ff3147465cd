//! Priority of threads on the processors. What a thread starts inherits it.

use std::fs;

use crate::progress::note;
use crate::sh::Cmd;

/// Lowers the priority of this thread and of what it starts. `nice` is from 1 to 19.
pub(crate) fn stand_back(nice: u8) {
    if let Some(thread) = thread() {
        // `renice` takes the ID of a thread like that of a process.
        let done = Cmd::new("renice").args(["-n", &nice.to_string(), "-p", &thread]).read();
        if let Err(error) = done {
            note(format!("what computes takes as much of the processors as what waits: {error:#}"));
        }
    }
}

/// This thread's ID: `/proc/thread-self` is a link to `PROCESS/task/THREAD`.
fn thread() -> Option<String> {
    let link = fs::read_link("/proc/thread-self").ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn niceness() -> i32 {
        Cmd::new("nice").read().unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_thread_stands_back_with_what_it_starts_and_alone() {
        let before = niceness();
        let within = std::thread::spawn(|| {
            stand_back(19);
            // Threads that it starts inherit the niceness.
            (niceness(), std::thread::spawn(niceness).join().unwrap())
        });
        assert_eq!(within.join().unwrap(), (19, 19));
        assert_eq!(niceness(), before);
    }
}
