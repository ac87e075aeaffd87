//! The driver's numbers and structures (ublk_cmd.h), transcribed by hand: byte maps in native byte order.
//!
//! Structures are byte arrays for the kernel and never cast: padding is zero.

/// A command number in the encoding that the driver requires: `_IOR` or `_IOWR` of letter `u` (ublk_cmd.h:
/// `UBLK_F_CMD_IOCTL_ENCODE`).
const fn encoded(direction: u32, number: u32, bytes: u32) -> u32 {
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}
const READ: u32 = 2;
const READ_WRITE: u32 = 3;

/// Commands to `/dev/ublk-control`, each with a [`ControlCommand`].
pub(crate) const GET_DEVICE_INFO: u32 = encoded(READ, 0x02, CONTROL_COMMAND_BYTES as u32);
pub(crate) const ADD_DEVICE: u32 = encoded(READ_WRITE, 0x04, CONTROL_COMMAND_BYTES as u32);
pub(crate) const DELETE_DEVICE: u32 = encoded(READ_WRITE, 0x05, CONTROL_COMMAND_BYTES as u32);
pub(crate) const START_DEVICE: u32 = encoded(READ_WRITE, 0x06, CONTROL_COMMAND_BYTES as u32);
pub(crate) const STOP_DEVICE: u32 = encoded(READ_WRITE, 0x07, CONTROL_COMMAND_BYTES as u32);
pub(crate) const SET_PARAMETERS: u32 = encoded(READ_WRITE, 0x08, CONTROL_COMMAND_BYTES as u32);
pub(crate) const GET_FEATURES: u32 = encoded(READ, 0x13, CONTROL_COMMAND_BYTES as u32);

/// Deletes without waiting until programs close the block device; since Linux 6.7.
pub(crate) const DELETE_DEVICE_SOON: u32 = encoded(READ, 0x14, CONTROL_COMMAND_BYTES as u32);

/// Sets the size in sectors ([`ControlCommand::value`]); requires [`FEATURE_UPDATE_SIZE`].
pub(crate) const UPDATE_SIZE: u32 = encoded(READ_WRITE, 0x15, CONTROL_COMMAND_BYTES as u32);

/// Commands to `/dev/ublkcN`, each with an [`io_command`].
pub(crate) const FETCH: u32 = encoded(READ_WRITE, 0x20, IO_COMMAND_BYTES as u32);
pub(crate) const COMMIT_AND_FETCH: u32 = encoded(READ_WRITE, 0x21, IO_COMMAND_BYTES as u32);

/// Features, and flags of a device.
pub(crate) const FEATURE_COMMANDS_ENCODED: u64 = 1 << 6;
pub(crate) const FEATURE_USER_COPY: u64 = 1 << 7;
/// Since Linux 6.16.
pub(crate) const FEATURE_UPDATE_SIZE: u64 = 1 << 10;

/// A device that is not in use: not started, stopped, or its server has died.
pub(crate) const STATE_DEAD: u16 = 0;

/// Attributes of [`Parameters`].
pub(crate) const ATTRIBUTE_READ_ONLY: u32 = 1;
pub(crate) const ATTRIBUTE_ROTATIONAL: u32 = 1 << 1;
pub(crate) const ATTRIBUTE_VOLATILE_CACHE: u32 = 1 << 2;
pub(crate) const ATTRIBUTE_FUA: u32 = 1 << 3;
const TYPE_BASIC: u32 = 1;
const TYPE_DISCARD: u32 = 1 << 1;

/// Operations: the low eight bits of [`Descriptor::operation_and_flags`].
pub(crate) const OPERATION_READ: u8 = 0;
pub(crate) const OPERATION_WRITE: u8 = 1;
pub(crate) const OPERATION_FLUSH: u8 = 2;
pub(crate) const OPERATION_DISCARD: u8 = 3;
pub(crate) const OPERATION_WRITE_ZEROES: u8 = 5;
/// Flags in the higher bits.
pub(crate) const FLAG_FUA: u32 = 1 << 13;
pub(crate) const FLAG_NO_UNMAP: u32 = 1 << 15;

/// The driver's unit of lengths and offsets, in bytes.
pub(crate) const SECTOR: u64 = 512;

pub(crate) const CONTROL_COMMAND_BYTES: usize = 32;
pub(crate) const IO_COMMAND_BYTES: usize = 16;
pub(crate) const DEVICE_INFO_BYTES: usize = 64;
pub(crate) const PARAMETERS_BYTES: usize = 64;
pub(crate) const DESCRIPTOR_BYTES: usize = 24;
/// The maximum size of a control command.
pub(crate) const ENTRY_BYTES: usize = 80;

/// The command does not concern a queue.
const NO_QUEUE: u16 = u16::MAX;
/// In ADD: any free device number.
pub(crate) const ANY_DEVICE: u32 = u32::MAX;

/// `struct ublksrv_ctrl_cmd`.
///
/// | at | bytes | |
/// |---|---|---|
/// | 0 | 4 | the device |
/// | 4 | 2 | the queue, none |
/// | 6 | 2 | length of the buffer |
/// | 8 | 8 | its address |
/// | 16 | 8 | a value of the command's own |
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlCommand {
    pub(crate) device: u32,
    pub(crate) length: u16,
    pub(crate) address: u64,
    pub(crate) value: u64,
}

impl ControlCommand {
    pub(crate) fn encode(self) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        put(&mut out, 0, self.device.to_ne_bytes());
        put(&mut out, 4, NO_QUEUE.to_ne_bytes());
        put(&mut out, 6, self.length.to_ne_bytes());
        put(&mut out, 8, self.address.to_ne_bytes());
        put(&mut out, 16, self.value.to_ne_bytes());
        out
    }
}

/// `struct ublksrv_ctrl_dev_info`, the fields used here.
///
/// | at | bytes | |
/// |---|---|---|
/// | 0 | 2 | queues |
/// | 2 | 2 | depth of each |
/// | 4 | 2 | state |
/// | 8 | 4 | longest transfer, bytes |
/// | 12 | 4 | the device |
/// | 16 | 4 | the server's process, while it is in use |
/// | 24 | 8 | flags |
/// | 32 | 8 | the server's own, which the driver keeps |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceInfo {
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    pub(crate) state: u16,
    pub(crate) transfer_max: u32,
    pub(crate) device: u32,
    pub(crate) flags: u64,
    pub(crate) own: u64,
}

impl DeviceInfo {
    pub(crate) fn encode(&self) -> [u8; DEVICE_INFO_BYTES] {
        let mut out = [0; DEVICE_INFO_BYTES];
        put(&mut out, 0, self.queues.to_ne_bytes());
        put(&mut out, 2, self.depth.to_ne_bytes());
        put(&mut out, 4, self.state.to_ne_bytes());
        put(&mut out, 8, self.transfer_max.to_ne_bytes());
        put(&mut out, 12, self.device.to_ne_bytes());
        put(&mut out, 24, self.flags.to_ne_bytes());
        put(&mut out, 32, self.own.to_ne_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8; DEVICE_INFO_BYTES]) -> DeviceInfo {
        DeviceInfo {
            queues: u16::from_ne_bytes(get(bytes, 0)),
            depth: u16::from_ne_bytes(get(bytes, 2)),
            state: u16::from_ne_bytes(get(bytes, 4)),
            transfer_max: u32::from_ne_bytes(get(bytes, 8)),
            device: u32::from_ne_bytes(get(bytes, 12)),
            flags: u64::from_ne_bytes(get(bytes, 24)),
            own: u64::from_ne_bytes(get(bytes, 32)),
        }
    }
}

/// `struct ublk_params`: its length and types, `ublk_param_basic` from 8 on and `ublk_param_discard` from 40 on.
///
/// | at | bytes | | at | bytes | |
/// |---|---|---|---|---|---|
/// | 0 | 4 | length of all | 24 | 8 | size, sectors |
/// | 4 | 4 | types | 44 | 4 | discard granularity, bytes |
/// | 8 | 4 | attributes | 48 | 4 | longest discard, sectors |
/// | 12 | 1 | logical block, as a power of two | 52 | 4 | longest write of zeroes, sectors |
/// | 13 | 1 | physical block | 56 | 2 | pieces of a discard |
/// | 14 | 1 | best I/O | | | |
/// | 15 | 1 | smallest good I/O | | | |
/// | 16 | 4 | longest transfer, sectors | | | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) attributes: u32,
    pub(crate) logical_shift: u8,
    pub(crate) physical_shift: u8,
    pub(crate) optimal_shift: u8,
    pub(crate) minimal_shift: u8,
    pub(crate) transfer_sectors: u32,
    pub(crate) sectors: u64,
    pub(crate) discard_granularity: u32,
    pub(crate) discard_sectors: u32,
    pub(crate) zeroes_sectors: u32,
}

impl Parameters {
    pub(crate) fn encode(&self) -> [u8; PARAMETERS_BYTES] {
        let mut out = [0; PARAMETERS_BYTES];
        put(&mut out, 0, (PARAMETERS_BYTES as u32).to_ne_bytes());
        put(&mut out, 4, (TYPE_BASIC | TYPE_DISCARD).to_ne_bytes());
        put(&mut out, 8, self.attributes.to_ne_bytes());
        let shifts = [self.logical_shift, self.physical_shift, self.optimal_shift, self.minimal_shift];
        put(&mut out, 12, shifts);
        put(&mut out, 16, self.transfer_sectors.to_ne_bytes());
        put(&mut out, 24, self.sectors.to_ne_bytes());
        put(&mut out, 44, self.discard_granularity.to_ne_bytes());
        put(&mut out, 48, self.discard_sectors.to_ne_bytes());
        put(&mut out, 52, self.zeroes_sectors.to_ne_bytes());
        put(&mut out, 56, 1_u16.to_ne_bytes());
        out
    }
}

/// `struct ublksrv_io_cmd`: queue 0, tag at 2, result at 4, address at 8, which must be zero with user copy.
pub(crate) fn io_command(tag: u16, result: i32) -> [u8; IO_COMMAND_BYTES] {
    let mut out = [0; IO_COMMAND_BYTES];
    put(&mut out, 2, tag.to_ne_bytes());
    put(&mut out, 4, result.to_ne_bytes());
    out
}

/// `struct ublksrv_io_desc`, without the address at 16, which is unused with user copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// At 0: the operation below bit 8, flags above.
    pub(crate) operation_and_flags: u32,
    /// At 4.
    pub(crate) sectors: u32,
    /// At 8.
    pub(crate) start_sector: u64,
}

impl Descriptor {
    pub(crate) fn decode(bytes: &[u8; DESCRIPTOR_BYTES]) -> Descriptor {
        Descriptor {
            operation_and_flags: u32::from_ne_bytes(get(bytes, 0)),
            sectors: u32::from_ne_bytes(get(bytes, 4)),
            start_sector: u64::from_ne_bytes(get(bytes, 8)),
        }
    }
}

/// The offset in `/dev/ublkcN` of a request's payload for queue 0 (ublk_cmd.h: `UBLKSRV_IO_BUF_OFFSET`,
/// `UBLK_TAG_OFF`).
pub(crate) fn payload_at(tag: u16, offset: u64) -> u64 {
    0x8000_0000 + (u64::from(tag) << 25) + offset
}

fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("N bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of the header's macros according to a C compiler.
    #[test]
    fn numbers_are_the_headers() {
        assert_eq!(GET_DEVICE_INFO, 0x8020_7502);
        assert_eq!(ADD_DEVICE, 0xc020_7504);
        assert_eq!(DELETE_DEVICE, 0xc020_7505);
        assert_eq!(START_DEVICE, 0xc020_7506);
        assert_eq!(STOP_DEVICE, 0xc020_7507);
        assert_eq!(SET_PARAMETERS, 0xc020_7508);
        assert_eq!(GET_FEATURES, 0x8020_7513);
        assert_eq!(DELETE_DEVICE_SOON, 0x8020_7514);
        assert_eq!(UPDATE_SIZE, 0xc020_7515);
        assert_eq!(FETCH, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
    }

    #[test]
    fn a_control_command_has_its_places() {
        let command = ControlCommand { device: 0x01020304, length: 0x0506, address: 0x0708, value: 0x0910 };
        let bytes = command.encode();
        assert_eq!(bytes[..4], 0x01020304_u32.to_ne_bytes());
        assert_eq!(bytes[4..6], [0xff, 0xff]);
        assert_eq!(bytes[6..8], 0x0506_u16.to_ne_bytes());
        assert_eq!(bytes[8..16], 0x0708_u64.to_ne_bytes());
        assert_eq!(bytes[16..24], 0x0910_u64.to_ne_bytes());
        assert!(bytes[24..].iter().all(|b| *b == 0), "what newer drivers read is zero");
    }

    #[test]
    fn a_devices_description_comes_back() {
        let info = DeviceInfo {
            queues: 1,
            depth: 128,
            state: 2,
            transfer_max: 1 << 20,
            device: 7,
            flags: FEATURE_USER_COPY,
            own: 0x1122_3344_5566_7788,
        };
        let bytes = info.encode();
        assert_eq!(DeviceInfo::decode(&bytes), info);
        assert_eq!(bytes[24..32], (1_u64 << 7).to_ne_bytes());
        assert_eq!(bytes[32..40], info.own.to_ne_bytes());
    }

    #[test]
    fn parameters_have_their_places() {
        let bytes = Parameters {
            attributes: ATTRIBUTE_VOLATILE_CACHE | ATTRIBUTE_FUA,
            logical_shift: 12,
            physical_shift: 13,
            optimal_shift: 18,
            minimal_shift: 14,
            transfer_sectors: 2048,
            sectors: 1 << 40,
            discard_granularity: 4096,
            discard_sectors: 77,
            zeroes_sectors: 88,
        }
        .encode();
        assert_eq!(bytes[..4], 64_u32.to_ne_bytes());
        assert_eq!(bytes[4..8], 3_u32.to_ne_bytes());
        assert_eq!(bytes[8..12], 12_u32.to_ne_bytes());
        assert_eq!(bytes[12..16], [12, 13, 18, 14]);
        assert_eq!(bytes[16..20], 2048_u32.to_ne_bytes());
        assert_eq!(bytes[24..32], (1_u64 << 40).to_ne_bytes());
        assert_eq!(bytes[44..48], 4096_u32.to_ne_bytes());
        assert_eq!(bytes[48..52], 77_u32.to_ne_bytes());
        assert_eq!(bytes[52..56], 88_u32.to_ne_bytes());
        assert_eq!(bytes[56..58], 1_u16.to_ne_bytes());
    }

    #[test]
    fn an_io_command_and_a_payload_have_their_places() {
        let bytes = io_command(0x0102, -5);
        assert_eq!(bytes[..2], [0, 0]);
        assert_eq!(bytes[2..4], 0x0102_u16.to_ne_bytes());
        assert_eq!(bytes[4..8], (-5_i32).to_ne_bytes());
        assert_eq!(bytes[8..], [0; 8]);
        assert_eq!(payload_at(0, 0), 0x8000_0000);
        assert_eq!(payload_at(3, 4096), 0x8000_0000 + 3 * (32 << 20) + 4096);
    }
}
