//! Property tests of the codecs and the ring, and replay against a model.

mod chance;
mod codecs;
mod directed;
mod history;
mod model;
mod ring;
mod values;

pub(super) use chance::Chance;

use super::entry::UnitPlace;

/// Stands for the place hash of the data path.
fn hash(place: &UnitPlace) -> u32 {
    let x = u64::from(place.birth) << 32 | u64::from(place.unit) << 5 | u64::from(place.content);
    (x ^ u64::from(place.row.0) << 17).wrapping_mul(0x9e37_79b9_7f4a_7c15) as u32
}
