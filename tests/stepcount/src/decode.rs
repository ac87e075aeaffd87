//! Classifies an instruction by its bytes, as far as it is counted (Intel SDM, volume 2).

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Has a LOCK prefix, or is an XCHG with memory, which locks implicitly.
    Locked,
    /// MFENCE.
    Fence,
    /// SYSCALL.
    Syscall,
    /// A near call, whose length is determined too.
    Call,
    /// Anything else.
    Other,
}

/// The kind of the first instruction of `code`, and for a call its length in bytes.
pub fn kind(code: &[u8]) -> (Kind, u64) {
    let (mut at, mut locked) = (0, false);
    while let Some(0x26 | 0x2E | 0x36 | 0x3E | 0x64..=0x67 | 0xF0 | 0xF2 | 0xF3) = code.get(at) {
        locked |= code[at] == 0xF0;
        at += 1;
    }
    if let Some(0x40..=0x4F) = code.get(at) {
        at += 1;
    }
    let byte = |i: usize| code.get(at + i).copied().unwrap_or(0);
    let modrm = byte(1);
    let kind = match byte(0) {
        _ if locked => Kind::Locked,
        0x86 | 0x87 if modrm >> 6 != 3 => Kind::Locked,
        0x0F if modrm == 0xAE && byte(2) == 0xF0 => Kind::Fence,
        0x0F if modrm == 0x05 => Kind::Syscall,
        0xE8 => return (Kind::Call, at as u64 + 5),
        0xFF if modrm >> 3 & 7 == 2 => return (Kind::Call, at as u64 + 1 + operand_length(modrm, byte(2))),
        _ => Kind::Other,
    };
    (kind, 0)
}

/// The length of a ModRM operand: the ModRM byte, a SIB byte and a displacement.
fn operand_length(modrm: u8, sib: u8) -> u64 {
    let (mode, register) = (modrm >> 6, modrm & 7);
    let has_sib = mode != 3 && register == 4;
    let displacement = match mode {
        0 if register == 5 || (has_sib && sib & 7 == 5) => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    1 + u64::from(has_sib) + displacement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_count() {
        for (code, expected) in [
            (&[0xF0, 0x48, 0xFF, 0x00][..], (Kind::Locked, 0)), // lock inc qword [rax]
            (&[0xF0, 0x0F, 0xB1, 0x0F], (Kind::Locked, 0)),     // lock cmpxchg [rdi], ecx
            (&[0x87, 0x07], (Kind::Locked, 0)),                 // xchg [rdi], eax
            (&[0x48, 0x87, 0xC8], (Kind::Other, 0)),            // xchg rax, rcx
            (&[0x0F, 0xAE, 0xF0], (Kind::Fence, 0)),            // mfence
            (&[0x0F, 0x05], (Kind::Syscall, 0)),                // syscall
            (&[0xE8, 0, 0, 0, 0], (Kind::Call, 5)),             // call +0
            (&[0xFF, 0xD0], (Kind::Call, 2)),                   // call rax
            (&[0x41, 0xFF, 0x54, 0x24, 0x18], (Kind::Call, 5)), // call [r12+0x18]
            (&[0xFF, 0x15, 0, 0, 0, 0], (Kind::Call, 6)),       // call [rip+0]
            (&[0xFF, 0x24, 0xC5, 0, 0, 0, 0], (Kind::Other, 0)), // jmp [rax*8]
            (&[0xF3, 0xA4], (Kind::Other, 0)),                  // rep movsb
        ] {
            assert_eq!(kind(code), expected, "{code:x?}");
        }
    }
}
