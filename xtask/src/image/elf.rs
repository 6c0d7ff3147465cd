//! Reads just enough of a program file to know that it runs on an empty root.

use anyhow::{Context as _, Result, bail};

/// The program header that names a dynamic loader.
const PT_INTERP: u32 = 3;

/// Fails unless the program is static and for this processor (a number of ELF).
pub(crate) fn require_static(program: &[u8], processor: u16) -> Result<()> {
    // Magic, 64 bit, little endian.
    if program.get(..6) != Some(b"\x7fELF\x02\x01") {
        bail!("not a 64-bit ELF program");
    }
    let machine = u16_at(program, 18)?;
    if machine != processor {
        bail!("a program for machine {machine}, not for {processor}");
    }
    let start = usize::try_from(u64::from_le_bytes(at(program, 32)?)).context("a header out of reach")?;
    let (size, count) = (usize::from(u16_at(program, 54)?), usize::from(u16_at(program, 56)?));
    for number in 0..count {
        let header = size
            .checked_mul(number)
            .and_then(|skip| skip.checked_add(start))
            .context("a header out of reach")?;
        if u32::from_le_bytes(at(program, header)?) == PT_INTERP {
            bail!("not static: it asks for a dynamic loader, which an empty root does not have");
        }
    }
    Ok(())
}

fn u16_at(program: &[u8], offset: usize) -> Result<u16> {
    at(program, offset).map(u16::from_le_bytes)
}

fn at<const N: usize>(program: &[u8], offset: usize) -> Result<[u8; N]> {
    program
        .get(offset..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .context("the file ends within its headers")
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86_64: u16 = crate::image::AMD64.machine;

    fn program(machine: u16, headers: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&u16::try_from(headers.len()).unwrap().to_le_bytes());
        for header in headers {
            bytes.extend(header.to_le_bytes());
            bytes.extend([0; 52]);
        }
        bytes
    }

    #[test]
    fn a_static_program_passes() {
        require_static(&program(X86_64, &[1, 1, 2]), X86_64).unwrap();
    }

    #[test]
    fn a_program_with_a_loader_does_not() {
        let error = require_static(&program(X86_64, &[6, PT_INTERP, 1]), X86_64).unwrap_err().to_string();
        assert!(error.starts_with("not static"), "{error}");
    }

    #[test]
    fn another_machine_or_another_file_does_not() {
        require_static(&program(183, &[1]), X86_64).unwrap_err();
        require_static(b"#!/bin/sh\n", X86_64).unwrap_err();
        require_static(&program(X86_64, &[1])[..66], X86_64).unwrap_err();
    }

    #[test]
    fn this_very_test_is_not_static() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        if cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")) {
            require_static(&own, X86_64).unwrap_err();
        }
    }
}
