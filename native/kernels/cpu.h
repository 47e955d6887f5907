// Which kernel sets this processor and its operating system can run. Apart from the sets: it is
// compiled without their flags, so that asking is safe everywhere.
#ifndef ES_KERNELS_CPU_H
#define ES_KERNELS_CPU_H

int es_cpu_runs_avx2(void);
int es_cpu_runs_avxvnni(void);
int es_cpu_runs_avx512(void);
int es_cpu_runs_neon(void);
int es_cpu_runs_i8mm(void);

#endif
