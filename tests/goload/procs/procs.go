// Package procs reads what processes have cost.
package procs

import (
	"os"
	"strconv"
	"strings"
)

// CPU is the processor time, in seconds, of the process root and all processes that descend from it (smbd forks one for each
// client).
func CPU(root int) float64 {
	entries, _ := os.ReadDir("/proc")
	parent, cpu := map[int]int{}, map[int]float64{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		text := string(stat)
		fields := strings.Fields(text[strings.LastIndex(text, ")")+2:])
		parent[pid], _ = strconv.Atoi(fields[1])
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		cpu[pid] = float64(user+system) / 100
	}
	total := 0.0
	for pid := range cpu {
		for p := pid; p > 1; p = parent[p] {
			if p == root {
				total += cpu[pid]
				break
			}
		}
	}
	return total
}

// RSS is the memory, in KiB, that a process holds.
func RSS(pid int) float64 {
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for _, line := range strings.Split(string(status), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kib, _ := strconv.ParseFloat(fields[1], 64)
			return kib
		}
	}
	return 0
}
