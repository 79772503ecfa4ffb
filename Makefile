# make demo    fine-tune SmolLM2-135M and see it answer differently
# make test    everything that CI runs but the formatter
# make build   the program at build/wgrad
# make install the program and the library into PREFIX (/usr/local)
# make package a .tar.gz and, where Debian's tools are, a .deb in build/
# make docs    the library's reference in build/docs/html
# make format  format the sources in place (format-check: only look)
# make command-docs  renew docs/commands from what the program prints

BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# Options for CMake, as CMAKE_FLAGS="-DDawn_DIR=/opt/dawn/lib/cmake/Dawn".
CMAKE_FLAGS ?=
SOURCES = $(shell git ls-files --cached --others --exclude-standard 'include/*.h' 'src/*.h' \
            'src/*.cc' 'cli/*.h' 'cli/*.cc' 'tests/*.h' 'tests/*.cc' 'bench/*.cc' 'examples/*.cc')

# Mesa's software driver compiles each kernel once, and mostly for a single run: without optimisation
# the tests take a quarter less time.
TEST_DRIVER = GALLIVM_PERF=nopt

.PHONY: build install package docs demo test format format-check command-docs clean

build:
	tools/install-dependencies.sh build
	cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS)
	cmake --build $(BUILD) --parallel $(JOBS) --target wgrad

install: build
	cmake --build $(BUILD) --parallel $(JOBS) --target wgrad_library
	cmake --install $(BUILD) --prefix $(PREFIX)

package: build
	tools/install-dependencies.sh package
	cmake -S . -B $(BUILD)
	cmake --build $(BUILD) --parallel $(JOBS) --target wgrad_library
	cd $(BUILD) && cpack

docs:
	tools/install-dependencies.sh build docs
	cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS)
	cmake --build $(BUILD) --target docs

demo: build
	tools/demo.sh $(BUILD)

test:
	tools/install-dependencies.sh build test
	tools/install-test-driver.sh
	cmake -S . -B $(BUILD) -G Ninja -DWGRAD_BUILD_TESTS=ON -DWGRAD_WERROR=ON $(CMAKE_FLAGS)
	cmake --build $(BUILD) --parallel $(JOBS)
	tools/fetch-smollm2.sh $(BUILD)/models
	WGRAD_SMOLLM2_GGUF=$(abspath $(BUILD))/models/smollm2-135m-instruct.gguf OMP_WAIT_POLICY=passive \
	  WGRAD_CACHE_DIR=$(abspath $(BUILD))/kernel-cache $(TEST_DRIVER) \
	  ctest --test-dir $(BUILD) --output-on-failure --no-tests=error --timeout 900 --parallel 2

format:
	clang-format -i $(SOURCES)

format-check:
	tools/install-dependencies.sh format
	clang-format --dry-run --Werror $(SOURCES)

command-docs: build
	tools/make-command-docs.sh $(BUILD)/wgrad

clean:
	cmake -E rm -rf $(BUILD)
