//! Measures the processor time of parity: P and Q of 8 + 2 columns, in memory that fits into the caches.

use std::time::Duration;

use env::Env;
use pool::parity::Code;
use serde_json::{Value, json};

const DATA: usize = 8;
/// Bytes of a column.
const LENGTH: usize = 64 << 10;
const RUN: Duration = Duration::from_millis(500);

/// GB of data per second on one core: for each parity alone, and for both.
pub(crate) fn run() -> Value {
    let code = Code::new(DATA, 1, true);
    let data: Vec<Vec<u8>> =
        (0..DATA).map(|c| (0..LENGTH).map(|i| (i * 7 + c * 31) as u8).collect()).collect();
    let env = Env::real();
    let of = |parities: &[usize]| {
        let mut unit = vec![0; LENGTH];
        let (start, mut stripes) = (env.now(), 0);
        while env.now() - start < RUN {
            for parity in parities {
                unit.fill(0);
                data.iter().enumerate().for_each(|(c, bytes)| code.add(*parity, c, bytes, &mut unit));
                std::hint::black_box(&mut unit);
            }
            stripes += 1;
        }
        let bytes = (stripes * DATA * LENGTH) as f64;
        (bytes / (env.now() - start).as_secs_f64() / 1e8).round() / 10.0
    };
    json!({"p": of(&[0]), "q": of(&[1]), "both": of(&[0, 1])})
}
