//! The output of `-?`.

/// The options, one line each.
pub const USAGE: &str = "\
Targets: a file, a block device, \\\\server\\share\\path or smb://server/share/path; or iwarp://host:port and
tcp://host:port of a causeway bench listen, without SMB. Write options before the targets.
Sizes are bytes, or a number with K, M, G, T (binary) or b (blocks, see -b).

  -a[g#,]#[,...]   processors for the threads, round robin; g# begins group # of 64 [all that are allowed]
  -b<size>         block size [64K]
  -B<base>[:len]   range of the target: beginning and length
  -c<size>         create the file with this size (a file of another size is replaced)
  -C<s> -W<s> -d<s>  cool-down [0], warm-up [5], duration [10]
  -D<ms>           gather IOPS in intervals [1000]: standard deviation, and the series in XML and JSON
  -f<size>         offsets stay below this
  -f<rst>          hints: r random, s sequential, t temporary
  -F<n> -O<n>      threads in all, and I/Os outstanding on each
  -g<n>[i]         rate for each thread and target: bytes per ms, or with i I/Os per second. I/Os start at planned
                   times, and latency is measured from these
  -i<n> -j<ms>     bursts of n I/Os with a pause after each
  -I<1-3>          I/O priority: very low, low, normal [3]
  -l               large pages for buffers
  -L               measure latency
  -n               no affinity
  -Nv              flush a mapping after each write (with -Sm)
  -o<n>            I/Os outstanding for each target and thread [2]
  -p               each outstanding I/O runs through the same offsets
  -P<n>            a dot for every n I/Os of a thread [65536]
  -r[align]        random offsets, multiples of align [block size]
  -rd<dist>        their distribution: pct90/10:0/10:5/20 or abs90/10G:0/10G (IO% / part)
  -rs<n>           n percent random, the rest in sequential runs
  -R[p]<format>    text, xml or json; p prints the profile and does not run it
  -s[i][stride]    sequential [default]; i: threads share one offset
  -S[bhmruw]       b cached, u unbuffered, w write-through, h = uw, m mapped, r only the server's cache
  -t<n>            threads for each target [1]
  -T<offs>         distance between the threads of a target
  -v[s]            verbose; s: wait statistics
  -w<n>            percent writes [0]. A write test destroys the contents of the target; block devices
                   also need --overwrite-devices
  -x               accepted without effect
  -X<file>         XML profile; targets *1, *2 in it stand for the first, the second target named here
  -z[seed]         seed [0; -z alone: from the clock]
  -Z               write zeros; -Zr random for each write; -Z<size>[,<file>] from a buffer
";
