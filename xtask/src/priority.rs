//! Which threads go first when all want a processor. What a thread starts inherits it.

use std::fs;

use crate::progress::note;
use crate::sh::Cmd;

/// Lets others go first: this thread, and what it starts, takes what is left of the processors. `nice` is from 1 to 19.
pub(crate) fn stand_back(nice: u8) {
    if let Some(thread) = thread() {
        // `renice` takes the number of a thread as that of a process.
        let done = Cmd::new("renice").args(["-n", &nice.to_string(), "-p", &thread]).read();
        if let Err(error) = done {
            note(format!("what computes takes as much of the processors as what waits: {error:#}"));
        }
    }
}

/// This thread's number: `/proc/thread-self` is a link to `PROCESS/task/THREAD`.
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
            // And so do threads that it starts.
            (niceness(), std::thread::spawn(niceness).join().unwrap())
        });
        assert_eq!(within.join().unwrap(), (19, 19));
        assert_eq!(niceness(), before);
    }
}
