//! Entry points for fuzz targets and "no input panics" tests: all code that a peer's bytes can reach.

use arena::{Arena, Class, IoBuf};
use env::Env;

use super::core::{Config, Core, Phase};
use super::mpa::{FRAME_LEN, Frame, Kind, Ready};
use crate::{Exposed, Remote, Rights, Stag, Wr, WrId};

/// Parses `bytes` as an MPA start-up frame of each kind.
pub fn frame(bytes: &[u8]) {
    let Some((fixed, tail)) = bytes.split_first_chunk::<FRAME_LEN>() else { return };
    for kind in [Kind::Request, Kind::Reply] {
        if let Ok(frame) = Frame::parse(kind, fixed, tail) {
            assert_eq!(frame.to_vec().as_ref().map(|b| b.len()), Ok(bytes.len()));
        }
    }
}

/// Feeds `bytes` to an established connection with exposures, receives and a Read in flight. The first byte of each
/// piece is its length, 1 to 256. A segment for steering tag 1, 2 or 3 is redirected to the exposed sink, the
/// exposed source or the Read, so that a fuzzer need not guess random tags.
pub fn connection(crc: bool, arena: &Arena, bytes: &[u8]) {
    let env = Env::simulated(1);
    let config = Config {
        crc,
        max_ulpdu: 1400,
        ird: 2,
        ord: 2,
        max_wr: 8,
        max_regions: 8,
        wait: true,
        ready: Ready::ALL,
    };
    let mut core = Core::new(env, config);
    let Some(tags) = furnish(&mut core, arena) else { return };
    let mut stream = Vec::new();
    let (mut rest, mut left) = (bytes, Vec::new());
    while let Some((first, more)) = rest.split_first() {
        let n = (usize::from(*first) + 1).min(more.len());
        stream.clear();
        stream.append(&mut left);
        stream.extend_from_slice(&more[..n]);
        redirect(&mut stream, &tags);
        rest = &more[n..];
        let used = core.input(&stream);
        left.extend_from_slice(&stream[used..]);
        flush(&mut core);
        if matches!(core.phase(), Phase::Down(_)) {
            break;
        }
    }
    core.end(core.input_ended(left.len()));
    assert_eq!(core.exposed(), 0);
}

/// Tags 1, 2 and 3, and the random tags that replace them.
type Tags = [(u32, Stag); 3];

fn furnish(core: &mut Core, arena: &Arena) -> Option<Tags> {
    let bufs = arena.try_alloc_sg(6000, Class::Payload)?;
    let sink = core.expose(Exposed::Sink { bufs, length: 6000 }, Rights::RemoteWrite).ok()?;
    let source = Exposed::Source([IoBuf::from(vec![7; 5000])].into_iter().collect());
    let source = core.expose(source, Rights::RemoteRead).ok()?;
    for id in 0..3 {
        core.post(WrId(id), Wr::Recv(arena.try_alloc(4096, Class::Payload)?)).ok()?;
    }
    let from = Remote { stag: Stag(9), offset: 0, length: 3000 };
    core.post(WrId(4), Wr::Read { sink: arena.try_alloc(4096, Class::Payload)?, from }).ok()?;
    let read = core.reads_in_flight_tag();
    Some([(1, sink.stag), (2, source.stag), (3, read)])
}

/// Replaces tags 1 to 3 at the start of the stream, where an FPDU starts.
fn redirect(stream: &mut [u8], tags: &Tags) {
    // In both kinds of segment, the steering tag follows the FPDU's length and the two control bytes.
    let Some(tag) = stream.get_mut(4..8) else { return };
    if let Some((_, real)) = tags.iter().find(|(named, _)| tag == named.to_be_bytes()) {
        tag.copy_from_slice(&real.0.to_be_bytes());
    }
}

/// Takes all output.
fn flush(core: &mut Core) {
    loop {
        let n = core.output().iter().map(|s| s.len()).sum();
        if n == 0 {
            return;
        }
        core.written(n);
    }
}
