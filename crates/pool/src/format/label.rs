//! The label: identifies a disk of a pool and locates its areas. The same block at both ends of the disk.

use std::fmt;

use super::areas::Areas;
use super::codec::{Malformed, Reader, Wire, choice, record};
use super::frame::{Frame, FrameError, Header, Kind};
use crate::state::FaultDomains;
use crate::{DiskId, DiskNumber, PoolId};

/// The version of everything on the disk. Only labels have it, because a label is read before anything else.
const FORMAT_VERSION: u16 = 1;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The pool.
    pub pool: PoolId,
    /// The disk's number in it.
    pub number: DiskNumber,
    /// The epoch in which the label was written; the pool remembers which epochs are its own.
    pub epoch: u64,
    /// The random number drawn with the epoch.
    pub incarnation: u64,
    /// Increases with each label of this disk.
    pub sequence: u64,
    /// The features required to use the disk, by name.
    pub features: Vec<Feature>,
    /// The disk's identity.
    pub id: DiskId,
    /// The name of the pool, for tools; the name in the metadata is authoritative.
    pub pool_name: String,
    /// The machine that wrote the label.
    pub node: [u8; 16],
    /// The disk's fault domains.
    pub domains: FaultDomains,
    /// The size of an atomic write in bytes, according to the disk.
    pub atomic_write: u32,
    /// The disk's areas.
    pub areas: Areas,
}

/// A feature that not every version supports; its name lets other versions report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The effect on programs without the feature.
    pub class: FeatureClass,
    /// Its bit in its class.
    pub bit: u8,
    /// Its name.
    pub name: String,
}

/// How a program must treat a disk with a feature that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FeatureClass {
    /// The program ignores the feature.
    Compatible,
    /// The program may only read the disk.
    ReadOnly,
    /// The program must refuse the disk.
    Incompatible,
}

/// Why a label cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// There is none, or it is damaged.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Another version of the format.
    #[error("format version {0}; this program knows version {FORMAT_VERSION} only")]
    Version(u16),
    /// Its content is invalid.
    #[error("the label is invalid")]
    Malformed,
}

record!(Feature { class, bit, name });
choice!(FeatureClass { 0 => Compatible, 1 => ReadOnly, 2 => Incompatible });

impl Label {
    /// Encodes the label as one block.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        FORMAT_VERSION.put(&mut body);
        for class in [FeatureClass::Compatible, FeatureClass::ReadOnly, FeatureClass::Incompatible] {
            self.bits(class).put(&mut body);
        }
        self.id.put(&mut body);
        self.node.put(&mut body);
        self.atomic_write.put(&mut body);
        self.areas.put(&mut body);
        self.pool_name.put(&mut body);
        self.domains.put(&mut body);
        self.features.put(&mut body);
        let header = Header {
            kind: Kind::Label,
            pool: self.pool,
            disk: self.number,
            epoch: self.epoch,
            incarnation: self.incarnation,
            sequence: self.sequence,
            chain: 0,
        };
        header.frame(&body)
    }

    /// Decodes the label in a block.
    pub fn decode(bytes: &[u8]) -> Result<Label, LabelError> {
        let frame = Frame::parse(bytes, Kind::Label)?;
        let mut r = Reader(frame.body);
        // The version is read first: other versions have an unknown layout.
        match u16::get(&mut r) {
            Ok(FORMAT_VERSION) => {}
            Ok(other) => return Err(LabelError::Version(other)),
            Err(Malformed) => return Err(LabelError::Malformed),
        }
        let label = Label::body(&frame.header, &mut r).map_err(|Malformed| LabelError::Malformed)?;
        if label.areas.is_sound() { Ok(label) } else { Err(LabelError::Malformed) }
    }

    fn body(h: &Header, r: &mut Reader<'_>) -> Result<Label, Malformed> {
        let bits = [u64::get(r)?, u64::get(r)?, u64::get(r)?];
        let mut label = Label {
            pool: h.pool,
            number: h.disk,
            epoch: h.epoch,
            incarnation: h.incarnation,
            sequence: h.sequence,
            id: Wire::get(r)?,
            node: Wire::get(r)?,
            atomic_write: Wire::get(r)?,
            areas: Wire::get(r)?,
            pool_name: Wire::get(r)?,
            domains: Wire::get(r)?,
            features: Wire::get(r)?,
        };
        r.end()?;
        // The bits are authoritative; the list only has their names.
        let classes = [FeatureClass::Compatible, FeatureClass::ReadOnly, FeatureClass::Incompatible];
        label.features.retain(|f| f.bit < 64 && bits[f.class as usize] & 1 << f.bit != 0);
        for (class, bits) in classes.into_iter().zip(bits) {
            for bit in (0..64).filter(|b| bits & 1 << b != 0) {
                if !label.features.iter().any(|f| f.class == class && f.bit == bit) {
                    label.features.push(Feature { class, bit, name: String::new() });
                }
            }
        }
        Ok(label)
    }

    /// The features of a class that this version does not support: so far, all of them.
    pub fn unknown(&self, class: FeatureClass) -> Vec<Feature> {
        self.features.iter().filter(|f| f.class == class).cloned().collect()
    }

    fn bits(&self, class: FeatureClass) -> u64 {
        let of = self.features.iter().filter(|f| f.class == class && f.bit < 64);
        of.fold(0, |bits, f| bits | 1 << f.bit)
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "bit {}", self.bit),
            name => f.write_str(name),
        }
    }
}
