//! A process in a container's cgroup that uses memory when it is told to.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

/// The argument that makes this program one.
pub(crate) const ROLE: &str = "load";

/// One that runs.
#[derive(Debug)]
pub(crate) struct Load {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Load {
    /// Starts one in a cgroup, whose `cgroup.procs` this is.
    pub(crate) fn start(procs: &str) -> Result<Self> {
        let mut child = Command::new("/init")
            .args([ROLE, procs])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a process")?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a process without pipes");
        };
        let mut load = Self { child, orders, answers: BufReader::new(answers) };
        load.answer()?;
        Ok(load)
    }

    /// Has it hold so many bytes of memory of its own, and no others.
    pub(crate) fn hold(&mut self, bytes: u64) -> Result<()> {
        self.order(&format!("hold {bytes}"))
    }

    /// Has it read a part of a disk, in bytes.
    pub(crate) fn read(&mut self, disk: &Path, from: u64, bytes: u64) -> Result<()> {
        self.order(&format!("read {from} {bytes} {}", disk.display()))
    }

    /// Has it overwrite a part of a disk, in bytes.
    pub(crate) fn write(&mut self, disk: &Path, from: u64, bytes: u64) -> Result<()> {
        self.order(&format!("write {from} {bytes} {}", disk.display()))
    }

    fn order(&mut self, order: &str) -> Result<()> {
        writeln!(self.orders, "{order}").with_context(|| format!("cannot ask for {order:?}"))?;
        self.answer().with_context(|| format!("{order:?} was not done"))
    }

    fn answer(&mut self) -> Result<()> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("no answer")?;
        match line.trim() {
            "done" => Ok(()),
            "" => bail!("the process has ended"),
            why => bail!("{why}"),
        }
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(mut self) -> Result<ExitStatus> {
        self.child.wait().context("cannot wait for a process")
    }

    /// Ends it.
    pub(crate) fn end(mut self) -> Result<()> {
        self.child.kill().context("cannot end a process")?;
        self.child.wait().context("cannot wait for a process")?;
        Ok(())
    }
}

/// The process itself. It ends when nobody is left to tell it anything.
pub(crate) fn serve(procs: &str) -> ExitCode {
    let mut held = Vec::new();
    let mut answer = match std::fs::write(procs, "0") {
        Ok(()) => "done".to_owned(),
        Err(error) => format!("cannot get into {procs}: {error}"),
    };
    println!("{answer}");
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { break };
        answer = match obey(&line, &mut held) {
            Ok(()) => "done".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        println!("{answer}");
    }
    ExitCode::SUCCESS
}

fn obey(order: &str, held: &mut Vec<u8>) -> Result<()> {
    let words: Vec<&str> = order.split(' ').collect();
    match words.as_slice() {
        ["hold", bytes] => {
            // Given back first.
            *held = Vec::new();
            *held = vec![1; bytes.parse()?];
            Ok(())
        }
        [verb @ ("read" | "write"), from, bytes, disk] => {
            let (from, bytes) = (from.parse()?, bytes.parse()?);
            let mut file = OpenOptions::new().read(true).write(*verb == "write").open(disk)?;
            file.seek(SeekFrom::Start(from))?;
            if *verb == "write" { fill(file, bytes) } else { skip(file, bytes) }
        }
        _ => bail!("{order:?} is not understood"),
    }
}

fn skip(file: File, bytes: u64) -> Result<()> {
    let read = std::io::copy(&mut file.take(bytes), &mut std::io::sink())?;
    if read < bytes {
        bail!("the disk ended after {read} bytes");
    }
    Ok(())
}

fn fill(mut file: File, bytes: u64) -> Result<()> {
    std::io::copy(&mut std::io::repeat(1).take(bytes), &mut file)?;
    Ok(())
}
