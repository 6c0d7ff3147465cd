//! The archive that a kernel unpacks as its first file system: cpio's format `newc`, described in the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`.

use anyhow::{Context as _, Result};

/// File types and permissions, as in `stat`.
const FOLDER: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const TERMINAL: u32 = 0o020_600;
/// Device numbers of the console.
const CONSOLE: (u32, u32) = (5, 1);

/// An archive of executables, by their path without the leading slash, and of the console for the first process's
/// output.
pub(crate) fn archive(executables: &[(&str, &[u8])]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let console = [("dev", FOLDER, (0, 0)), ("dev/console", TERMINAL, CONSOLE)];
    let special = console.map(|(path, mode, device)| (path, mode, device, [].as_slice()));
    let plain = executables.iter().map(|(path, content)| (*path, EXECUTABLE, (0, 0), *content));
    let end = ("TRAILER!!!", 0, (0, 0), [].as_slice());
    for (inode, (path, mode, device, content)) in (1..).zip(special.into_iter().chain(plain).chain([end])) {
        entry(&mut bytes, inode, path, mode, device, content)
            .with_context(|| format!("{path} is too large"))?;
    }
    Ok(bytes)
}

fn entry(
    bytes: &mut Vec<u8>,
    inode: u32,
    path: &str,
    mode: u32,
    device: (u32, u32),
    content: &[u8],
) -> Result<()> {
    let (size, name) = (u32::try_from(content.len())?, u32::try_from(path.len() + 1)?);
    // Inode, mode, owner, group, links, time, size, two numbers of the disk, two of the device, length of the name, sum.
    let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name, 0];
    bytes.extend_from_slice(b"070701");
    for field in fields {
        bytes.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    bytes.extend_from_slice(path.as_bytes());
    bytes.push(0);
    align(bytes);
    bytes.extend_from_slice(content);
    align(bytes);
    Ok(())
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_begin_at_multiples_of_four_and_the_last_ends_it() {
        let bytes = archive(&[("init", b"12345")]).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let starts: Vec<_> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert_eq!(starts.len(), 4);
        assert!(starts.iter().chain([&bytes.len()]).all(|at| at.is_multiple_of(4)), "{starts:?}");
        let init = &text[starts[2]..];
        assert_eq!(
            &init[..62],
            format!(
                "070701{:08x}{:08x}{}{:08x}",
                3, 0o100_755, "0000000000000000000000010000000000000005", 0
            )
            .get(..62)
            .unwrap()
        );
        assert_eq!(&init[110..115], "init\0");
        assert_eq!(&init[116..121], "12345");
        assert!(text[starts[3]..].contains("TRAILER!!!\0"));
    }
}
