//! Lists this machine's disks, or reports for each given path whether it may be pooled.
//!
//! `cargo run -p disk --example qualify -- [PATH...]`

use disk::qualify::{QualifyOptions, list, qualify};
use env::Env;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    if paths.is_empty() {
        for d in list() {
            println!("{}  {}  {}  {} bytes  {}", d.path.display(), d.id, d.media, d.geometry.size, d.model);
        }
    }
    for path in paths {
        match qualify(&Env::real(), path.as_ref(), &QualifyOptions::default()).await {
            Err(e) => println!("{e}"),
            Ok(q) => {
                println!(
                    "{}  CanPool {}  {}  {:?}",
                    q.info.path.display(),
                    q.can_pool,
                    q.info.id,
                    q.info.geometry
                );
                q.reasons.iter().for_each(|r| println!("  {}: {r}. Cure: {}", r.name(), r.cure()));
                q.warnings.iter().for_each(|w| println!("  Warning: {w}"));
                if let Some(f) = q.flush {
                    println!("  Flush: median {:?}, longest {:?}, of {}", f.median, f.longest, f.samples);
                }
            }
        }
    }
}
